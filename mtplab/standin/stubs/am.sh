# names: am
echo "Starting: Intent { ... }"
echo "Error: Activity not started, unable to resolve Intent (the stand-in runs no apps)" >&2
exit 1
