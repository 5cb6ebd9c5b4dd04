# names: dumpsys
case "${1-}" in
  ''|-l)
    echo "Currently running services:"
    for file in battery display package thermalservice; do echo "  $file"; done ;;
  package)
    if [ -r "/dev/.sim/dumpsys/package.${2-}" ]; then cat "/dev/.sim/dumpsys/package.$2"
    else echo "Unable to find package: ${2-}"; fi ;;
  */*) echo "Can't find service: $1" ;;
  *)
    if [ -r "/dev/.sim/dumpsys/$1" ]; then cat "/dev/.sim/dumpsys/$1"
    else echo "Can't find service: $1"; fi ;;
esac
exit 0
