# Fails where an object file for one kind of CPU has a function that the linker may take for others: an inline function
# which was not inlined, outside of that CPU's namespace. Run as `cmake -P simd_symbols.cmake NM OBJECTS...`.
math(EXPR last "${CMAKE_ARGC} - 1")
foreach(i RANGE 4 ${last})
  set(object "${CMAKE_ARGV${i}}")
  execute_process(COMMAND "${CMAKE_ARGV3}" -C --defined-only "${object}" OUTPUT_VARIABLE symbols COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[0-9a-f]+ W [^\n]*" functions "${symbols}")
  list(FILTER functions EXCLUDE REGEX "::(AVX2|AVX512|AVX512_VNNI)::")
  if(functions)
    list(JOIN functions "\n  " lines)
    message(SEND_ERROR "${object} has functions that are compiled for one kind of CPU and may be linked for all:\n  ${lines}")
  endif()
endforeach()
