_advisor() {
  local at="${COMP_WORDS[1]}" words
  if [ "$COMP_CWORD" = 1 ]; then words="{verbs}"; else
    case "$at" in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _advisor advisor
