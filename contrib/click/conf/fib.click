// Whatever fibula.h reads: concise, ofw, the lines, and the table that a running switch shows.
//     CLICKPATH=target/click:contrib/click click -h source.rate contrib/click/conf/fib.click FIB=names.fib NAMES=names.csv
require(package "fibula");
elementclass Switch FibulaFib;
require(library forward.click);
