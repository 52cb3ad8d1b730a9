"""The completion file of each shell.

Each asks by running `sweet` with `_SWEET_COMPLETE=complete_SHELL` (see `sweet.cli.completion`). None of them
evaluates the answer.
"""

from __future__ import annotations

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
        complete -C "sweet-files "(commandline -ct) # the files that fish offers for unknown programs, with ~
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
