"""One module per command of `iris`, in the folder of its section of the help; each is imported when
it is called.
"""
