"""The phone, seen through adb."""
