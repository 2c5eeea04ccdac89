# Makes Doxygen's comments of the headers' plain ones, before Doxygen reads them.
# The comment that begins a file is about the file.
1s:^// :/// \\file\n/// :
1s:^/\* :/** \\file\n * :
# Code in a comment stands three spaces in, and for Doxygen four more than the text.
s:^( *//|^ \*)   :\1     :
# Remarks for linters say nothing of the interface.
s: *// NOLINT.*::
# Behind a declaration a comment is about what stands before it; else about what follows.
s:([^ /].*)  // :\1  ///< :
s:^( *)//( |$):\1///\2:
s:([^ /].*[;,] +)/\* :\1/**< :
s:^/\* :/** :
