# names: standin-run
# Runs a program of the host for the device: arguments go out by file, output and exit code come back by FIFOs.
here=/dev/.sim/run/$$
rm -rf "$here"
mkdir "$here" || exit 126
mkfifo "$here/out" "$here/err" "$here/rc" || exit 126
printf '%s\0' "$PWD" "$@" >"$here/args"
cat <"$here/out" &
cat <"$here/err" >&2 &
echo $$ >/dev/.sim/req
code=126
read -r code <"$here/rc"
wait
rm -rf "$here" 2>/dev/null # the stand-in removes it too
if [ "$code" -gt 128 ]; then kill -$((code - 128)) $$; fi
exit "$code"
