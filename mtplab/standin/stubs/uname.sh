# names: uname
while IFS='=' read -r key value; do
  case "$key" in kernel) kernel=$value ;; hostname) host=$value ;; esac
done </dev/.sim/facts
case "${1--s}" in
  -a) echo "Linux $host $kernel #1 SMP PREEMPT aarch64 Toybox" ;;
  -m) echo aarch64 ;;
  -n) echo "$host" ;;
  -r) echo "$kernel" ;;
  -s) echo Linux ;;
  *) echo "uname: Unknown option '$1'" >&2; exit 1 ;;
esac
