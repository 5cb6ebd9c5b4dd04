"""A Pixel that isn't there: the device side of adb, a shell, files and heat."""
