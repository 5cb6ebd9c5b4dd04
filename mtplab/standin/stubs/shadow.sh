# names: sha256sum md5sum sha1sum
# A pushed program that cannot run here is kept aside under /dev/.sim/shadow: its own bytes are what is hashed.
tool=${0##*/}
[ -d /dev/.sim/shadow ] || exec toybox "$tool" "$@"
[ $# -gt 0 ] || exec toybox "$tool"
for file; do case "$file" in -*) exec toybox "$tool" "$@" ;; esac; done
status=0
for file; do
  aside=/dev/.sim/shadow$(readlink -f "$file")
  if [ -f "$aside" ]; then
    set -- $(toybox "$tool" <"$aside")
    echo "$1  $file"
  else
    toybox "$tool" "$file" || status=1
  fi
done
exit $status
