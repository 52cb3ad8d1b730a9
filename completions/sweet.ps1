Register-ArgumentCompleter -Native -CommandName sweet -ScriptBlock {
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
