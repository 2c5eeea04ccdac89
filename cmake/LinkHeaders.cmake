# link_headers(TARGET...) names the header folders of imported targets by links in the build folder: headers/TARGET-NUMBER.
#
# ccache then finds what was compiled in another Python environment with the same headers: those of one release of torch are
# the same for each CPython, and so are all commands but those of the Python modules.
function(link_headers)
  file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/headers")
  foreach(target IN LISTS ARGN)
    if(TARGET ${target})
      string(REPLACE "::" "-" name ${target})
      get_target_property(folders ${target} INTERFACE_INCLUDE_DIRECTORIES)
      set(links)
      foreach(folder IN LISTS folders)
        list(LENGTH links number)
        set(link "${PROJECT_BINARY_DIR}/headers/${name}-${number}")
        file(CREATE_LINK "${folder}" "${link}" SYMBOLIC)
        list(APPEND links "${link}")
      endforeach()
      set_target_properties(${target} PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${links}"
                                                 INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${links}")
    endif()
  endforeach()
endfunction()
