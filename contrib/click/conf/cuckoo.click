// (2,4)-Cuckoo with whole names, design cuckoo.
//     CLICKPATH=target/click:contrib/click click -h source.rate contrib/click/conf/cuckoo.click FIB=cuckoo.fib NAMES=names.csv
require(package "fibula");
elementclass Switch FibulaCuckoo;
require(library forward.click);
