// One cache line a lookup, designs line, line-fast and line-small.
//     CLICKPATH=target/click:contrib/click click -h source.rate contrib/click/conf/line.click FIB=line.fib NAMES=names.csv
require(package "fibula");
elementclass Switch FibulaLine;
require(library forward.click);
