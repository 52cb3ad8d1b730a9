"""Frontend design: the request for a page is vague, the human has one exact page in mind and sees only screenshots.

`page` extracts the page from a reply, `view` reduces a rendered page to its visible parts, `compare` lists how two
pages differ, and `words` puts the differences into sentences. `writer` is a rule-based agent that follows such
sentences.
"""
