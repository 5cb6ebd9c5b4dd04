# names: logcat top uptime
# What needs more than a file is answered by the stand-in itself.
exec standin-run "@${0##*/}" "$@"
