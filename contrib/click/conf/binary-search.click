// Binary search over whole names, design sorted.
//     CLICKPATH=target/click:contrib/click click -h source.rate contrib/click/conf/binary-search.click FIB=sorted.fib NAMES=names.csv
require(package "fibula");
elementclass Switch FibulaBinarySearch;
require(library forward.click);
