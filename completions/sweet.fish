function _sweet_completion
    set -l words (commandline -cp | string collect)
    set -l found (env _SWEET_COMPLETE=complete_fish _SWEET_WORDS="$words" sweet 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\n' $found
    else
        complete -C "sweet-files "(commandline -ct) # the files that fish offers for unknown programs, with ~
    end
end

complete --no-files --keep-order --command sweet --arguments '(_sweet_completion)'
