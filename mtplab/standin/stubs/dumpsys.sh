# names: dumpsys
case "${1-}" in
  ''|-l)
    echo "Currently running services:"
    for file in battery cpuinfo display meminfo package power thermalservice; do echo "  $file"; done ;;
  package)
    if [ -r "/dev/.sim/dumpsys/package.${2-}" ]; then cat "/dev/.sim/dumpsys/package.$2"
    else echo "Unable to find package: ${2-}"; fi ;;
  cpuinfo|meminfo) exec standin-run @dumpsys "$@" ;;
  battery)
    if [ $# -gt 1 ]; then exec standin-run @dumpsys "$@"; fi
    cat /dev/.sim/dumpsys/battery ;;
  power)
    powered=false; plug=0
    case "$(cat /dev/.sim/dumpsys/battery)" in
      *"AC powered: true"*) powered=true; plug=1 ;;
      *"USB powered: true"*) powered=true; plug=2 ;;
      *"Wireless powered: true"*) powered=true; plug=4 ;;
    esac
    awake=Awake; if [ -f /dev/.sim/settings/wakefulness ]; then read -r awake </dev/.sim/settings/wakefulness; fi
    saver=false; if [ "$(settings get global low_power)" = 1 ]; then saver=true; fi
    echo "POWER MANAGER (dumpsys power)"
    echo
    echo "Power Manager State:"
    echo "  mWakefulness=$awake"
    echo "  mIsPowered=$powered"
    echo "  mPlugType=$plug"
    echo "  mStayOnWhilePluggedInSetting=$(settings get global stay_on_while_plugged_in)"
    echo "  mBatterySaverEnabled=$saver" ;;
  display)
    screen=ON; case "$(dumpsys power)" in *mWakefulness=A[!w]*) screen=OFF ;; esac
    sed "s/mScreenState=ON/mScreenState=$screen/" /dev/.sim/dumpsys/display ;;
  */*) echo "Can't find service: $1" ;;
  *)
    if [ -r "/dev/.sim/dumpsys/$1" ]; then cat "/dev/.sim/dumpsys/$1"
    else echo "Can't find service: $1"; fi ;;
esac
exit 0
