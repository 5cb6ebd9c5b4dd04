# names: pm cmd
if [ "${0##*/}" = cmd ]; then
  case "${1-}" in
    package) shift ;;
    *) echo "cmd: Can't find service: ${1-}" >&2; exit 20 ;;
  esac
fi
case "${1-} ${2-}" in
  "list packages")
    while read -r name; do
      case "$name" in *"${3-}"*) echo "package:$name" ;; esac
    done </dev/.sim/packages ;;
  path\ *)
    while read -r name; do
      if [ "$name" = "$2" ]; then echo "package:/product/priv-app/$name/base.apk"; exit 0; fi
    done </dev/.sim/packages
    exit 1 ;;
  *) echo "the stand-in has no 'pm ${1-}'" >&2; exit 1 ;;
esac
