//! Images of filters: encoded and decoded they give the same answers, and damaged bytes are refused.

use fibula_lookup::bloom::image::{self, Header, ImageError};
use fibula_lookup::bloom::{
    AddressHashing, Blocked, CounterBits, Counting, DoubleHashing, Layout, OneHashing, Partitioned, Shape, Standard,
};
use fibula_lookup::hash::{Digest, Family, SecretKey};
use fibula_lookup::testkit::{Rng, seed};
use xxhash_rust::xxh3::xxh3_64;

fn random_digests(rng: &mut Rng, n: usize) -> Vec<Digest> {
    (0..n).map(|_| Digest(rng.next_u64())).collect()
}

/// The image after `change`, with a valid checksum.
fn resealed(image: &[u8], change: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut image = image[..image.len() - 8].to_vec();
    change(&mut image);
    let checksum = xxh3_64(&image);
    image.extend(checksum.to_le_bytes());
    image
}

fn bytes_and_back_give_the_same_answers<L: Layout>() {
    let mut rng = Rng::new(seed());
    let key = SecretKey::from_seed(rng.next_u64());
    for (bits, n_hashes, n_names) in [(1, 1, 0), (64, 2, 5), (10_007, 7, 1000), (100_003, 32, 2000)] {
        let shape = Shape::<L>::new(bits, n_hashes).unwrap();
        let mut counting = Counting::new(shape, CounterBits::Four, rng.next_u64());
        let names = random_digests(&mut rng, n_names);
        names.iter().for_each(|&name| counting.insert(name, &mut Vec::new()));
        let filter = counting.filter();
        let header = Header::new(filter, Family::Wy, &key, n_names as u64, 7);
        let plain = image::encode(filter, &header);
        let (read, back) = image::decode::<L>(&plain).unwrap();
        assert_eq!((&read, image::header(&plain).unwrap()), (&header, header.clone()));
        assert_eq!((back.words(), back.places()), (filter.words(), filter.places()));
        let asked: Vec<_> = names.iter().copied().chain(random_digests(&mut rng, 1000)).collect();
        assert!(asked.iter().all(|&name| back.lookup(name) == filter.lookup(name)));
        assert_eq!(image::encode(&back, &read), plain);

        let with_counters = image::encode_counting(&counting, &header);
        let (read, mut back) = image::decode_counting::<L>(&with_counters).unwrap();
        assert_eq!(read, Header { counters: Some(CounterBits::Four), ..header.clone() });
        assert_eq!(image::encode_counting(&back, &read), with_counters);
        assert_eq!(image::decode::<L>(&with_counters).unwrap().1.words(), filter.words());
        names.iter().for_each(|&name| back.remove(name, &mut Vec::new()).unwrap());
        if back.n_saturated() == 0 {
            assert!(back.filter().words().iter().all(|&word| word == 0), "all names can be removed again");
        }
        assert!(image::decode_counting::<L>(&plain).is_err(), "there are no counters");
    }
}

#[test]
fn bytes_and_back_give_the_same_answers_in_every_layout() {
    bytes_and_back_give_the_same_answers::<Standard>();
    bytes_and_back_give_the_same_answers::<Partitioned>();
    bytes_and_back_give_the_same_answers::<Blocked>();
    bytes_and_back_give_the_same_answers::<OneHashing>();
    bytes_and_back_give_the_same_answers::<AddressHashing>();
    bytes_and_back_give_the_same_answers::<DoubleHashing>();
}

fn sample() -> (Vec<u8>, Vec<u8>) {
    let mut rng = Rng::new(seed());
    let key = SecretKey::from_seed(1);
    let mut counting = Counting::new(Shape::<OneHashing>::new(1000, 5).unwrap(), CounterBits::Eight, 2);
    random_digests(&mut rng, 80).into_iter().for_each(|name| counting.insert(name, &mut Vec::new()));
    let header = Header::new(counting.filter(), Family::MulAdd, &key, 80, 0);
    (image::encode(counting.filter(), &header), image::encode_counting(&counting, &header))
}

#[test]
fn every_truncation_and_every_flipped_bit_is_refused() {
    let (plain, with_counters) = sample();
    for image in [plain, with_counters] {
        for length in 0..image.len() {
            assert!(image::decode::<OneHashing>(&image[..length]).is_err(), "{length} of {} bytes", image.len());
        }
        for bit in 0..image.len() * 8 {
            let mut damaged = image.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(image::decode::<OneHashing>(&damaged).is_err(), "bit {bit}");
        }
    }
}

#[test]
fn wrong_fields_under_a_right_checksum_are_refused() {
    let (plain, with_counters) = sample();
    let refused = |image: &[u8], change: &dyn Fn(&mut Vec<u8>)| {
        let image = resealed(image, |image| change(image));
        image::decode::<OneHashing>(&image).expect_err("a wrong field was taken")
    };
    let put =
        |at: usize, bytes: &'static [u8]| move |image: &mut Vec<u8>| image[at..at + bytes.len()].copy_from_slice(bytes);
    assert!(matches!(refused(&plain, &put(0, b"GIF89a..")), ImageError::NotAnImage { .. }));
    assert!(matches!(refused(&plain, &put(8, &[9, 0])), ImageError::UnknownFormat { found: 9 }));
    assert!(matches!(refused(&plain, &put(10, &[1])), ImageError::OtherStructure { structure: 1, .. }));
    assert!(matches!(refused(&plain, &put(11, b"s")), ImageError::OtherVariant { .. }));
    assert!(matches!(refused(&plain, &put(13, &[200])), ImageError::Family(_)));
    for (at, bytes) in [
        (12, &[0][..]),
        (12, &[33]),
        (14, &[5]),
        (15, &[1]),
        (66, &[1]),
        (71, &[1]),
        // No sum of five odd primes; none; and far more bits than there are bytes.
        (72, &[232, 3, 0, 0, 0, 0, 0, 0]),
        (72, &[0, 0, 0, 0, 0, 0, 0, 0]),
        (72, &[255, 255, 255, 255, 255, 255, 255, 255]),
        (79, &[1]),
    ] {
        let error = refused(&plain, &put(at, bytes));
        println!("{at}: {error}");
    }
    // A bit beyond the last, a byte beyond the end, and a bit without its counter.
    let n_bits = image::header(&plain).unwrap().bits;
    assert!((1..63).contains(&(n_bits % 64)));
    assert!(matches!(refused(&plain, &|image| *image.last_mut().unwrap() |= 1 << 7), ImageError::Bits(_)));
    assert!(matches!(refused(&plain, &|image| image.push(0)), ImageError::Decode(_)));
    assert!(matches!(refused(&with_counters, &|image| image[80] ^= 1), ImageError::Bits(_)));
    assert!(matches!(refused(&with_counters, &|image| image.truncate(image.len() - 8)), ImageError::Decode(_)));
    assert!(image::decode::<Standard>(&plain).is_err(), "another layout");
}
