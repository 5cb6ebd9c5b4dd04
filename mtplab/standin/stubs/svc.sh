# names: svc
# The sum of the sources of power that keep the screen on: 1 AC, 2 USB, 4 wireless.
case "${1-} ${2-} ${3-}" in
  "power stayon true") settings put global stay_on_while_plugged_in 7 ;;
  "power stayon false") settings put global stay_on_while_plugged_in 0 ;;
  "power stayon ac") settings put global stay_on_while_plugged_in 1 ;;
  "power stayon usb") settings put global stay_on_while_plugged_in 2 ;;
  "power stayon wireless") settings put global stay_on_while_plugged_in 4 ;;
  "wifi enable "*) settings put global wifi_on 1 ;;
  "wifi disable "*) settings put global wifi_on 0 ;;
esac
exit 0
