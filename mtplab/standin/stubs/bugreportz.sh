# names: bugreportz bugreport
# adb asks for the version (on standard error) and then for progress lines, of which FAIL: ends with a reason.
reason="the stand-in makes no bug reports; ask it for dumpsys, getprop or logcat"
case "${0##*/} ${1-}" in
  "bugreportz -v") echo 1.1 >&2; exit 0 ;;
  bugreportz*) echo "FAIL:$reason"; exit 1 ;;
esac
echo "bugreport: $reason" >&2
exit 1
