_sweet_completion() {
    local IFS=$'
'
    COMPREPLY=( $( env COMP_WORDS="${COMP_WORDS[*]}" \
                   COMP_CWORD=$COMP_CWORD \
                   _SWEET_COMPLETE=complete_bash $1 ) )
    return 0
}

complete -o default -F _sweet_completion sweet
