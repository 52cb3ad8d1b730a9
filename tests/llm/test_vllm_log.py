"""The error that ended a vllm, among the tracebacks of its processes."""

from __future__ import annotations

from sweet.llm.vllm_log import root_cause

WORKER, CORE, API = "(Worker_TP1 pid=31) ", "(EngineCore_DP0 pid=12) ", "(APIServer pid=1) "
FULL = "ValueError: Free memory on device cuda:0 (2.3/79.3 GiB) on startup is less than desired."
CHAINED = "The above exception was the direct cause of the following exception:"


def logged(process: str, *lines: str) -> list[str]:
    return [f"{process}ERROR 11-27 10:00:00 [core.py:842] {line}" for line in lines]


def raised(process: str, *lines: str) -> list[str]:
    return [f"{process}{line}" for line in ("Traceback (most recent call last):", '  File "x.py", line 3', *lines)]


FAILED = raised(API, "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}")


def test_the_first_error_is_shown_and_not_those_that_follow_from_it() -> None:
    lines = [
        "INFO 11-27 10:00:00 [api_server.py:1] vLLM API server version 0.33.0",
        *logged(CORE, "EngineCore failed to start.", "Traceback (most recent call last):", '  File "x.py"', FULL),
        f"{CORE}Process EngineCore_DP0:",
        *raised(CORE, FULL),
        *FAILED,
    ]
    assert root_cause(lines) == [FULL]


def test_a_worker_fails_before_the_engine_that_waits_for_it() -> None:
    waiting = (
        "Exception: WorkerProc initialization failed due to an exception in a background process. See stack trace."
    )
    room = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB."
    # The lines of several processes are mixed.
    rows = zip(raised(WORKER, room), raised("(Worker_TP0 pid=30) ", "EOFError"), strict=True)
    lines = [line for row in rows for line in row[::-1]]
    assert root_cause([*lines, *raised(CORE, waiting), *FAILED]) == [room]


def test_of_a_chain_the_last_is_shown_with_all_its_lines() -> None:
    gated = ["OSError: You are trying to access a gated repo.", "Make sure to have access to it.", "401 Client Error."]
    lines = [*raised("", "requests.exceptions.HTTPError: 401 Client Error."), "", CHAINED, "", *raised("", *gated)]
    assert root_cause(lines) == gated
    lines += ["INFO 11-27 10:00:00 [x.py:1] another line"]
    assert root_cause(lines) == gated


def test_of_a_server_that_ran_the_last_error_is_shown() -> None:
    lines = [
        *raised(API, "ValueError: one request was refused"),
        *raised(CORE, "AcceleratorError: CUDA error"),
        *raised(API, "EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause."),
    ]
    assert root_cause(lines, ran=True) == ["AcceleratorError: CUDA error"]


def test_a_wrong_command_line_and_a_log_without_an_error() -> None:
    wrong = "vllm serve: error: unrecognized arguments: --max-model-length"
    assert root_cause(["usage: vllm serve [model_tag] [options]", wrong]) == [wrong]
    assert root_cause(["Loading weights took 3 seconds", "Killed"]) == []
