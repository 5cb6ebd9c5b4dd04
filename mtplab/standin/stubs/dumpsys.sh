# names: dumpsys
case "${1-}" in
  ''|-l)
    echo "Currently running services:"
    for file in battery display package power thermalservice; do echo "  $file"; done ;;
  package)
    if [ -r "/dev/.sim/dumpsys/package.${2-}" ]; then cat "/dev/.sim/dumpsys/package.$2"
    else echo "Unable to find package: ${2-}"; fi ;;
  power)
    awake=Awake; if [ -f /dev/.sim/settings/wakefulness ]; then read -r awake </dev/.sim/settings/wakefulness; fi
    saver=false; if [ "$(settings get global low_power)" = 1 ]; then saver=true; fi
    echo "POWER MANAGER (dumpsys power)"
    echo
    echo "Power Manager State:"
    echo "  mWakefulness=$awake"
    echo "  mIsPowered=true"
    echo "  mPlugType=2"
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
