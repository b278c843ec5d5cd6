// Orthogonal Bloom filters, design obf.
//     CLICKPATH=target/click:contrib/click click -h source.rate contrib/click/conf/orthogonal-bloom.click FIB=obf.fib NAMES=names.csv
require(package "fibula");
elementclass Switch FibulaOrthogonalBloom;
require(library forward.click);
