// The same without a lookup: the port is of the last byte of the name, and FIB is the number of ports, a power of two.
//     CLICKPATH=target/click:contrib/click click -h source.rate contrib/click/conf/none.click FIB=16 NAMES=names.csv
require(package "fibula");
elementclass Switch FibulaNone;
require(library forward.click);
