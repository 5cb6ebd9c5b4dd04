# names: log
priority=I tag=log
while :; do
  case "${1-}" in
    -p) priority=${2-} ;;
    -t) tag=${2-} ;;
    *) break ;;
  esac
  shift; shift
done
case "$priority" in
  v) priority=V ;; d) priority=D ;; i) priority=I ;; w) priority=W ;; e) priority=E ;; f) priority=F ;;
  [VDIWEF]) ;;
  *) echo "log: bad priority '$priority'" >&2; exit 1 ;;
esac
nanoseconds=$(date +%N)
printf '%s.%s %5d %5d %s %-8s: %s\n' \
  "$(date '+%m-%d %H:%M:%S')" "${nanoseconds%??????}" $$ $$ "$priority" "$tag" "$*" >>/dev/.sim/logcat
