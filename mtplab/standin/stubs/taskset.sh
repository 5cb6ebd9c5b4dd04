# names: taskset
# The phone's cores are not the host's: the mask is checked against the phone's and the program is run as it is.
if [ "${1-}" = -p ]; then shift; fi
mask=${1#0x}
case "$mask" in
  ''|*[!0-9a-fA-F]*) echo "taskset: bad mask '${1-}'" >&2; exit 1 ;;
esac
while IFS='=' read -r key value; do
  if [ "$key" = cpus ]; then cpus=$value; fi
done </dev/.sim/facts
if [ $(( 0x$mask & ((1 << cpus) - 1) )) -eq 0 ]; then
  echo "taskset: failed to set mask '$1': Invalid argument" >&2
  exit 1
fi
shift
case "${1-}" in
  ''|*[!0-9]*) ;;
  *) exit 0 ;;
esac
[ $# -gt 0 ] || exit 0
exec "$@"
