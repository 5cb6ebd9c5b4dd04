# names: input
state=Awake
if [ -f /dev/.sim/settings/wakefulness ]; then read -r state </dev/.sim/settings/wakefulness; fi
if [ "${1-}" = keyevent ]; then
  case "${2-}" in
    224|KEYCODE_WAKEUP|WAKEUP) state=Awake ;;
    223|KEYCODE_SLEEP|SLEEP) state=Asleep ;;
    26|KEYCODE_POWER|POWER) if [ "$state" = Awake ]; then state=Asleep; else state=Awake; fi ;;
  esac
  echo "$state" >/dev/.sim/settings/wakefulness
fi
exit 0
