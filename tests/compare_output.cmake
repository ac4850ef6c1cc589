# cmake -DPROGRAM=... -DEXPECTED=... -P: fails unless the program ends well and prints what the file holds.
execute_process(COMMAND ${PROGRAM} OUTPUT_VARIABLE output RESULT_VARIABLE status)
file(READ ${EXPECTED} expected)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${PROGRAM}: exit status ${status}")
endif()
if(NOT output STREQUAL expected)
  message(FATAL_ERROR "${PROGRAM} prints\n${output}\nexpected (${EXPECTED})\n${expected}")
endif()
