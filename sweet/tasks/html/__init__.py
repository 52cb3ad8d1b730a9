"""Frontend design: a page is asked for vaguely, the human has one exact page in mind and sees only screenshots.

How a reply becomes a page is in `page`, what can be seen of a rendered page in `view`, how two pages differ in
`compare` and in sentences in `words`. `writer` is an agent that follows such sentences by rules. `datasets` holds the
tasks.
"""
