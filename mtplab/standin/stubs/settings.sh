# names: settings
# One file a setting, replaced in one step, so that a reader never meets half of the store.
store=/dev/.sim/settings
bad() { echo "$1" >&2; exit 255; }
if [ "${1-}" = --user ]; then shift; shift; fi
case "${2-}" in
  system|secure|global) ;;
  *) bad "Invalid namespace '${2-}'" ;;
esac
case "${3-}" in
  *[!A-Za-z0-9_.:-]*) bad "Invalid key" ;;
  '') if [ "${1-}" != list ]; then bad "Invalid arguments"; fi ;;
esac
file=$store/$2.${3-}
case "${1-}" in
  get) if [ -f "$file" ]; then cat "$file"; else echo null; fi ;;
  put)
    if [ $# -lt 4 ]; then bad "Invalid arguments"; fi
    echo "$4" >"$store/.new.$$" && mv -f "$store/.new.$$" "$file" ;;
  delete)
    if [ -f "$file" ]; then rm -f "$file"; echo "Deleted 1 rows"; else echo "Deleted 0 rows"; fi ;;
  list)
    for file in "$store/$2."*; do
      if [ -f "$file" ]; then read -r value <"$file"; echo "${file#"$store/$2."}=$value"; fi
    done ;;
  *) bad "Invalid command: ${1-}" ;;
esac
