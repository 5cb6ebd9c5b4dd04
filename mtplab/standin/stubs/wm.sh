# names: wm
while IFS='=' read -r key value; do
  case "$key ${1-}" in
    "wm_size size") echo "Physical size: $value" ;;
    "wm_density density") echo "Physical density: $value" ;;
  esac
done </dev/.sim/facts
