"""The beginning of a program that plays dialogues as a client of the gateway, without packages (`--harness`)."""

HARNESS = """
import json, os, sys, urllib.error, urllib.request
task, base, key = (os.environ[name] for name in ("SWEET_TASK", "OPENAI_BASE_URL", "OPENAI_API_KEY"))
task = json.loads(task)
assert {*task} == {"id", "kind", "problem_description", "system", "max_turns"}, task
def ask(messages, model="agent", key=key, path="/chat/completions", address=base, **more):
    body = json.dumps({"model": model, "messages": messages, **more} if messages else more).encode()
    head = {"Authorization": "Bearer " + key, "Content-Type": "application/json"}
    try:
        answer = json.load(urllib.request.urlopen(urllib.request.Request(address + path, body, head)))
        return answer["choices"][0]["message"]["content"] if messages else answer
    except urllib.error.HTTPError as error:
        return error.code
request = {"role": "user", "content": task["problem_description"]}
"""
