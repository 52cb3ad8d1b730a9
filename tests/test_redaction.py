"""Keys and passwords in texts that are shown or written."""

from __future__ import annotations

import base64
import json
import traceback
from typing import Any

import pytest

from sweet.cli import console
from sweet.cli.exits import as_sweet_error
from sweet.errors import InputError, SweetError, UsageError
from sweet.llm.servers import KEY_VARIABLES, base_url
from sweet.redaction import VARIABLES, redacted, redacted_json, reply_redactor
from sweet.runs.environment import recordable

KEY = "kQ7-vvw/93+hidden=="


def redacted_reply(text: str) -> str:
    return reply_redactor()(text)


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("SWEET_SIM_API_KEY", KEY)


def test_the_keys_of_all_roles_are_known() -> None:
    assert {name for names in KEY_VARIABLES.values() for name in names} <= set(VARIABLES)


@pytest.mark.parametrize("name", VARIABLES)
def test_the_value_of_a_variable_is_removed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "secret-of-this-machine")
    assert redacted("it said secret-of-this-machine!") == "it said ***!"
    assert redacted_reply("it said secret-of-this-machine!") == "it said ***!"


@pytest.mark.parametrize(
    "spelt", [KEY, f"Bearer {KEY}", "kQ7-vvw%2F93%2Bhidden%3D%3D", f"a{KEY}{KEY}b", json.dumps({"a": KEY})]
)
def test_every_spelling_of_a_key_is_removed(spelt: str) -> None:
    for text in (redacted(spelt), redacted_reply(spelt)):
        assert "hidden" not in text


def _basic(key: str, user: str) -> str:
    return base64.b64encode(f"{user}:{key}".encode()).decode()


@pytest.mark.parametrize(
    "form",
    [
        base64.b64encode(KEY.encode()).decode(),
        base64.urlsafe_b64encode(KEY.encode()).decode(),
        *(_basic(KEY, user) for user in ("u", "us", "use")),
        base64.b64encode(f"{KEY} and more".encode()).decode(),
        KEY.encode().hex(),
        KEY.encode().hex(":").upper(),
        KEY[::-1],
        " ".join(KEY),
        "-".join(KEY),
        f"{KEY[:9]} … {KEY[9:]}",
    ],
)
def test_other_forms_of_a_key_are_removed_from_messages_and_records(form: str) -> None:
    shown = redacted(f"Refused: {form}!")
    assert shown == redacted_json({"error": [f"Refused: {form}!"]})["error"][0]
    assert "***" in shown
    left = shown.removeprefix("Refused: ").removesuffix("!")
    assert len(left.replace("*", "")) <= 16, "what surrounds the key in an encoded text"
    for start in range(0, len(form) - 8):
        assert form[start : start + 8] not in left or form[start : start + 8] not in KEY + KEY[::-1]
    assert redacted_reply(form) == form or "***" in redacted_reply(form)


def test_half_of_an_address_and_other_forms_of_a_word_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SWEET_NOTIFY", "https://hooks.example/services/a/b/c")
    monkeypatch.setenv("OPENAI_API_KEY", "drawer")
    text = "https://hooks.example/other: the reward is 1"
    assert redacted(text) == text


def test_of_two_keys_the_longer_one_is_removed_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY + "-longer")
    assert redacted(f"<{KEY}-longer>") == "<***>"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("http://user:word@host/v1", "http://***@host/v1"),
        ("http://host/v1?api_key=abc&x=1", "http://host/v1?api_key=***&x=1"),
        ("http://host/?x=1&token=abc", "http://host/?x=1&token=***"),
        ("Authorization: Bearer abcdefgh", "Authorization: Bearer ***"),
        ("Incorrect API key: sk-abcdefghijklmnop1234.", "Incorrect API key: sk-***."),
    ],
)
def test_what_looks_like_a_secret_is_removed_from_messages(text: str, shown: str) -> None:
    assert redacted(text) == shown
    assert redacted_reply(text) == text, "a reply is data"


@pytest.mark.parametrize("value", ["EMPTY", "none", "x", ""])
def test_a_placeholder_is_no_key(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", value)
    text = "def f(x): return None if EMPTY else x  # none"
    assert redacted(text) == redacted_reply(text) == text


def test_a_word_that_replies_contain_stays_in_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "password")
    code = "def login(password): return password"
    assert redacted_reply(code) == code
    assert "password" not in redacted("the server said password")


def test_json_is_redacted_in_values_and_names() -> None:
    value = {"a": [1, None, KEY], KEY: {"b": f"x {KEY}"}, "n": 1.5}
    shown = {"a": [1, None, "***"], "***": {"b": "x ***"}, "n": 1.5}
    assert redacted_json(value) == recordable(value) == shown


def test_an_error_shows_no_key(capsys: pytest.CaptureFixture[str]) -> None:
    error = SweetError(f"It said {KEY}.", where=f"http://u:{KEY}@host", fix=f"write --agent {KEY}")
    invalid = InputError(f"It said {KEY}.", path=f"/tmp/{KEY}", line=3)
    for one in (error, invalid):
        console.show_error(one)
        console.show_traceback(one)
        assert "hidden" not in "".join(traceback.format_exception(one)) + str(one) + repr(one)
    assert error.fix == "write --agent ***"
    console.show_error(as_sweet_error(ValueError(f"It said {KEY}.")))
    console.print_json({"error": KEY, "path": [KEY]})
    console.show(console.safe_text(KEY))
    captured = capsys.readouterr()
    assert "hidden" not in captured.out + captured.err
    assert captured.err.count("***") > 3


def test_an_address_with_a_password_is_not_repeated() -> None:
    for text in ("http://user:pass-word@host/v1", "http://host/v1?api_key=pass-word"):
        with pytest.raises(UsageError) as error:
            base_url(text)
        assert "pass-word" not in str(error.value)


def test_other_values_are_unchanged() -> None:
    value: dict[str, Any] = {"url": "http://host:8000/v1", "mail": "a@b", "text": "x?y=1&z", "sk": "sk-short"}
    assert redacted_json(value) == value
