# names: ps pgrep pidof
# Only the stand-in's own processes: /proc/PID holds nothing but a command line.
tool=${0##*/}
full=
for word; do
  case "$word" in
    -f) full=1 ;;
    -*) ;;
    *) wanted=$word ;;
  esac
done
[ "$tool" = ps ] && echo "USER           PID NAME"
found=1
for folder in /proc/[0-9]*; do
  pid=${folder#/proc/}
  line=
  while IFS= read -r -d '' word; do line="$line$word "; done 2>/dev/null <"$folder/cmdline"
  [ -n "$line" ] || continue
  name=${line%% *}
  name=${name##*/}
  case "$tool" in
    ps) echo "shell        $pid $line"; found=0 ;;
    pidof) if [ "$name" = "${wanted-}" ]; then echo "$pid"; found=0; fi ;;
    pgrep)
      text=$name
      if [ -n "$full" ]; then text=$line; fi
      case "$text" in *"${wanted-}"*) [ "$pid" = $$ ] || { echo "$pid"; found=0; } ;; esac ;;
  esac
done
exit $found
