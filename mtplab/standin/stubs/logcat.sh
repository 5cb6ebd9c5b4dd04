# names: logcat
dump=
for word; do
  case "$word" in
    -c|--clear) : >/dev/.sim/logcat; exit 0 ;;
    -d) dump=1 ;;
  esac
done
if [ -n "$dump" ]; then exec cat /dev/.sim/logcat; fi
exec tail -n +1 -f /dev/.sim/logcat
