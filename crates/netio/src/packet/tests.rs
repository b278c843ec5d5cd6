use super::*;

#[test]
fn a_frame_starts_on_a_cache_line_with_full_headroom() {
    for max_frame in [60, 1514, 2048, 9000, MAX_FRAME_LIMIT] {
        let mut packet = Packet::new(max_frame);
        packet.resize(max_frame).unwrap();
        assert_eq!(packet.frame().as_ptr() as usize % CACHE_LINE, 0);
        assert_eq!(packet.headroom(), HEADROOM);
        assert_eq!(packet.len(), max_frame);
    }
}

#[test]
fn a_tag_inserted_and_removed_leaves_the_frame_as_it_was() {
    let frame: Vec<u8> = (0..100).collect();
    let mut packet = Packet::from_frame(&frame);
    assert!(packet.insert(12, [0xaa, 0xbb, 0xcc, 0xdd]));
    assert_eq!(&packet.frame()[..18], &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0xaa, 0xbb, 0xcc, 0xdd, 12, 13]);
    assert!(packet.remove(12, 4));
    assert_eq!(packet.frame(), &frame[..]);
}

#[test]
fn tags_stop_at_the_end_of_the_headroom() {
    let mut packet = Packet::from_frame(&[7; 20]);
    let n = (0..100).take_while(|_| packet.insert(12, [1, 2, 3, 4])).count();
    assert_eq!(n, HEADROOM / 4);
    assert_eq!(packet.len(), 20 + HEADROOM);
    assert!(!Packet::from_frame(&[7; 5]).insert(12, [0; 4]), "an insertion point behind the frame");
    assert!(!Packet::from_frame(&[7; 15]).remove(12, 4), "more than the frame has");
}

#[test]
fn an_oversized_frame_is_refused_with_the_numbers() {
    let mut packet = Packet::new(64);
    let max = packet.capacity();
    assert_eq!(packet.fill(&vec![0; max + 1]), Err(FrameTooLong { got: max + 1, max }));
    assert_eq!(packet.len(), 0);
    assert!(packet.fill(&vec![0; max]).is_ok());
}

/// A lender that says in its buffer's last byte how often it was given back.
fn lend(bytes: &mut [u8; 256]) -> Loan {
    static LENDER: Lender = Lender {
        // SAFETY: the token is the buffer, which the test keeps until its end.
        give_back: |token| unsafe { *token.cast::<u8>().add(255).as_ptr() += 1 },
    };
    let bytes = NonNull::from(bytes).cast();
    Loan { bytes, len: 255, token: bytes.cast(), lender: &LENDER }
}

#[test]
fn a_lent_buffer_has_the_frame_and_is_given_back_once() {
    let mut bytes = [0; 256];
    (0..).zip(&mut bytes[128..228]).for_each(|(i, byte)| *byte = i);
    let loan = lend(&mut bytes);
    let given_back = || {
        // SAFETY: the buffer is there until the end of the test, and no one writes now.
        unsafe { *loan.bytes.add(255).as_ptr() }
    };
    let frame: Vec<u8> = (0..100).collect();
    let emptied: [fn(Packet); 5] = [
        drop,
        |mut packet| packet.reset(),
        |mut packet| packet.fill(&[1; 60]).unwrap(),
        |packet| Pool::new(0, 1514).put(packet),
        |mut packet| {
            let (lender, token, _) = packet.loan().unwrap();
            // The lender takes it by itself.
            // SAFETY: it is the buffer's lender, and the packet does not give it back any more.
            unsafe { (lender.give_back)(token) };
            packet.end_loan();
            assert_eq!((packet.len(), packet.headroom()), (0, HEADROOM));
        },
    ];
    for (n, empty) in (1..).zip(emptied) {
        let mut packet = Packet::new(1514);
        // SAFETY: the buffer outlives the packet, and no one else uses its first 255 bytes.
        unsafe { packet.borrow(loan, 128, 228) };
        assert_eq!((packet.frame(), packet.headroom()), (&frame[..], 128));
        assert!(packet.insert(12, [0xaa, 0xbb, 0xcc, 0xdd]));
        assert_eq!(packet.frame()[10..18], [10, 11, 0xaa, 0xbb, 0xcc, 0xdd, 12, 13]);
        assert_eq!(packet.loan().map(|(.., start)| start), Some(124));
        assert!(packet.remove(12, 4));
        packet.frame_mut()[99] = 99;
        assert_eq!(packet.frame(), &frame[..]);
        assert_eq!(given_back(), n - 1);
        empty(packet);
        assert_eq!(given_back(), n);
    }
}

#[test]
#[should_panic(expected = "a frame at 128..256 in 255 bytes")]
fn a_frame_behind_a_lent_buffer_is_refused() {
    let mut bytes = [0; 256];
    // SAFETY: as above.
    unsafe { Packet::new(1514).borrow(lend(&mut bytes), 128, 256) };
}

#[test]
fn a_pool_runs_dry_and_recovers() {
    let mut pool = Pool::new(2, 1514);
    let a = pool.take().unwrap();
    let b = pool.take().unwrap();
    assert!(pool.take().is_none());
    pool.put(a);
    pool.put(b);
    assert_eq!(pool.available(), 2);
}
