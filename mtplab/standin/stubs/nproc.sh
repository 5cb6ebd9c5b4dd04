# names: nproc
while IFS='=' read -r key value; do
  if [ "$key" = cpus ]; then echo "$value"; fi
done </dev/.sim/facts
