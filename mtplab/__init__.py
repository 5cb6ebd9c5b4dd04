"""mtplab: is a multi-token-prediction draft head worth it on this phone?"""

__version__ = "0.1.0"
