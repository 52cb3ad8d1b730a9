"""Completion: what a shell is answered, and the file that makes it ask.

A shell asks by running `sweet` with `_SWEET_COMPLETE=complete_SHELL` and the words so far in a variable; it is answered
with one candidate a line, for all shells but bash with a tab and the help behind it. Nothing is ever printed on stderr
and the exit code is 0, whatever is wrong: somebody is typing. `_SWEET_COMPLETE=source_SHELL` prints the shell's file.
None of these files evaluates what it is answered.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from sweet.cli.typer_internals import Command, CompletionItem, resolve_context, resolve_incomplete, split_arg_string

BASH = r"""_sweet_completion() {
    local IFS=$'\n'
    COMPREPLY=( $( env COMP_WORDS="${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD \
        _SWEET_COMPLETE=complete_bash "$1" 2>/dev/null ) )
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == */ ]]; then
        compopt -o nospace 2>/dev/null
    fi
    return 0
}

complete -o default -F _sweet_completion sweet
"""

ZSH = r"""#compdef sweet

_sweet_completion() {
    local -a values shown folders
    local line
    for line in "${(@f)$(env _SWEET_WORDS="${(j: :)words[1,$CURRENT]}" \
            _SWEET_COMPLETE=complete_zsh "$words[1]" 2>/dev/null)}"; do
        [[ -z $line ]] && continue
        if [[ $line == */$'\t'* ]]; then
            folders+=("${line%%$'\t'*}")
        else
            values+=("${line%%$'\t'*}")
            shown+=("${line/$'\t'/  }")
        fi
    done
    (( $#values )) && compadd -U -l -V sweet -d shown -a values
    (( $#folders )) && compadd -U -S '' -V folders -a folders
    (( $#values + $#folders )) || _files
}

if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
    _sweet_completion "$@"
else
    compdef _sweet_completion sweet
fi
"""

FISH = r"""function _sweet_completion
    set -l words (commandline -cp | string collect)
    set -l found (env _SWEET_COMPLETE=complete_fish _SWEET_WORDS="$words" sweet 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        complete -C "sweet-files "(commandline -ct) # what fish itself offers a program it does not know: ~ too
    end
end

complete --no-files --keep-order --command sweet --arguments '(_sweet_completion)'
"""

POWERSHELL = r"""Register-ArgumentCompleter -Native -CommandName sweet -ScriptBlock {
    param($wordToComplete, $commandAst, $cursorPosition)
    $line = $commandAst.ToString()
    $length = $cursorPosition - $commandAst.Extent.StartOffset
    if ($length -le $line.Length) { $line = $line.Substring(0, $length) } else { $line += ' ' }
    $Env:_SWEET_COMPLETE = 'complete_powershell'
    $Env:_SWEET_WORDS = $line
    try {
        sweet 2>$null | ForEach-Object {
            $value, $help = $_ -split "`t", 2
            if (-not $help) { $help = $value }
            [System.Management.Automation.CompletionResult]::new($value, $value, 'ParameterValue', $help)
        }
    } finally {
        Remove-Item Env:_SWEET_COMPLETE, Env:_SWEET_WORDS
    }
}
"""

SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH, "powershell": POWERSHELL, "pwsh": POWERSHELL}

_BREAKS = (":", "=")
"""Where bash takes a word apart that everybody else takes as one: `RUN:scores-2`, `http://host`, `--task=code`."""


def answer(instruction: str, program: Command) -> None:
    """Print what `_SWEET_COMPLETE` asks for."""
    what, _, shell = instruction.partition("_")
    if what == "source" and shell in SCRIPTS:
        sys.stdout.write(SCRIPTS[shell])
        return
    try:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 2)
        text = "".join(f"{line}\n" for line in _lines(shell, program)) if what == "complete" else ""
        sys.stdout.buffer.write(text.encode())
        sys.stdout.flush()
    except BaseException:  # even an interrupt: nobody is there to be told
        os._exit(0)


def _lines(shell: str, program: Command) -> list[str]:
    if shell == "bash":
        words, strip = bash_words(os.environ["COMP_WORDS"], int(os.environ["COMP_CWORD"]))
        return [item.value[strip:] for item in completions(program, words)]
    line = os.environ["_SWEET_WORDS"]
    words = split_arg_string(line)
    if not words or line[-1:].isspace():
        words.append("")
    flag, equals, _ = words[-1].partition("=")
    before = flag + equals if flag.startswith("--") and equals else ""  # these shells replace the whole word
    return [f"{before}{item.value}\t{' '.join((item.help or '').split())}" for item in completions(program, words)]


def completions(program: Command, words: Sequence[str]) -> list[CompletionItem]:
    """What may stand in place of the last word; the first is the program's name."""
    before = list(words[1:-1])
    context = resolve_context(program, {}, "sweet", before)
    wanted, incomplete = resolve_incomplete(context, before, words[-1])
    return wanted.shell_complete(context, incomplete)


def bash_words(line: str, position: int) -> tuple[list[str], int]:
    """The words up to the one at `position`, as other shells see them, and how many characters of the last one bash
    has already behind it and does not want to be told again."""
    given = split_arg_string(line)[: position + 1]
    given += [""] * (position + 1 - len(given))
    words: list[str] = []
    joined = False
    for word in given:
        breaks = word in _BREAKS or word.strip(":=") == ""
        if words[1:] and word and (breaks or joined):
            words[-1] += word
        else:
            words.append(word)
        joined = breaks and bool(word)
    last = words[-1]
    value = last.partition("=")[2] if last.startswith("--") and "=" in last else last
    kept = "" if joined else given[-1]
    return words, max(len(value) - len(kept), 0) if last != given[-1] or joined else 0
