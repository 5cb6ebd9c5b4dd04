# names: setprop
echo "Failed to set property '$1' to '$2'." >&2
echo "See dmesg for error reason." >&2
exit 1
