# names: pm cmd
if [ "${0##*/}" = cmd ]; then
  case "${1-}" in
    package) shift ;;
    connectivity)
      case "${2-} ${3-}" in
        "airplane-mode enable") settings put global airplane_mode_on 1 ;;
        "airplane-mode disable") settings put global airplane_mode_on 0 ;;
        "airplane-mode ")
          if [ "$(settings get global airplane_mode_on)" = 1 ]; then echo enabled; else echo disabled; fi ;;
        *) echo "Unknown command: ${2-}" >&2; exit 255 ;;
      esac
      exit 0 ;;
    power)
      case "${2-} ${3-}" in
        "set-mode 0") settings put global low_power 0 ;;
        "set-mode 1") # Android turns the battery saver on only without a charger
          case "$(dumpsys battery)" in
            *"powered: true"*) ;;
            *) settings put global low_power 1 ;;
          esac ;;
        *) echo "Unknown command: ${2-}" >&2; exit 255 ;;
      esac
      exit 0 ;;
    settings) shift; exec settings "$@" ;;
    battery|thermalservice) exec standin-run @cmd "$@" ;;
    -l|list)
      echo "Currently running services:"
      for service in battery connectivity package power settings thermalservice; do echo "  $service"; done
      exit 0 ;;
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
