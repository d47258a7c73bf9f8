//! The journal as a whole: whatever its writer was doing when it stopped, what is read tells of every
//! request once.

use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use super::*;

/// What happens to memory and world, in order.
#[derive(Clone, Debug)]
enum Step {
    Store(usize, u64),
    Write(usize, Vec<u8>),
    Clear(usize, usize),
    /// The kernel has put the host's bytes here; the host's pipe no longer has them.
    Arrived(usize, Vec<u8>),
    /// The host has the answer to this request.
    Answered(usize),
}

/// Memory that remembers how it became what it is.
#[derive(Debug, Default)]
pub(crate) struct Recorder {
    bytes: Mutex<Vec<u8>>,
    steps: Mutex<Vec<Step>>,
}

impl Recorder {
    fn new(len: usize) -> Arc<Self> {
        Arc::new(Self {
            bytes: Mutex::new(vec![0; len]),
            steps: Mutex::default(),
        })
    }

    fn step(&self, step: Step) {
        match &step {
            Step::Store(at, word) => {
                assert_eq!(at % WORD_BYTES, 0, "a word in one piece");
                self.put(*at, &word.to_le_bytes());
            }
            Step::Write(at, bytes) => self.put(*at, bytes),
            Step::Clear(at, len) => self.put(*at, &vec![0; *len]),
            Step::Arrived(at, bytes) => {
                let mut held = vec![0; bytes.len()];
                self.read(*at, &mut held);
                assert!(held.iter().all(|byte| *byte == 0), "read into zeros");
                self.put(*at, bytes);
            }
            Step::Answered(_) => {}
        }
        self.steps.lock().unwrap().push(step);
    }

    fn put(&self, at: usize, bytes: &[u8]) {
        self.bytes.lock().unwrap()[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

impl Memory for Recorder {
    fn len(&self) -> usize {
        self.bytes.lock().unwrap().len()
    }
    fn load(&self, at: usize) -> u64 {
        let mut word = [0; WORD_BYTES];
        self.read(at, &mut word);
        u64::from_le_bytes(word)
    }
    fn store(&self, at: usize, word: u64) {
        self.step(Step::Store(at, word));
    }
    fn read(&self, at: usize, bytes: &mut [u8]) {
        bytes.copy_from_slice(&self.bytes.lock().unwrap()[at..at + bytes.len()]);
    }
    fn write(&self, at: usize, bytes: &[u8]) {
        self.step(Step::Write(at, bytes.to_vec()));
    }
    fn clear(&self, at: usize, len: usize) {
        self.step(Step::Clear(at, len));
    }
}

/// A journal with room for lines of this length, as a shim hands it over.
pub(crate) fn fresh(region: usize, image: &Image) -> (Arc<Recorder>, usize) {
    let memory = Recorder::new(INPUT_AT + 2 * region);
    let input = image.write(&*memory);
    (memory, input)
}

#[test]
fn a_session_comes_back_as_it_was_left() {
    let begun = Image {
        initialize: Some(b"{\"id\":0}".to_vec()),
        told: Some("2025-06-18".to_owned()),
        subscriptions: [b"\"a\"".to_vec()].into(),
        input: b"{\"half".to_vec(),
        ..Image::default()
    };
    let (memory, _) = fresh(128 << 10, &begun);
    assert_eq!(Image::read(&*memory), Ok(begun));
    let writer = Writer::new(memory.clone());
    assert!(writer.record(Change::Level(b"debug")));
    assert!(writer.record(Change::Subscribed(b"\"b\"")));
    assert!(writer.record(Change::Unsubscribed(b"\"a\"")));
    writer.end(Ended::Ending);
    let image = Image::read(&*memory).unwrap();
    assert_eq!(image.level.as_deref(), Some("debug"));
    assert_eq!(image.subscriptions, [b"\"b\"".to_vec()].into());
    assert_eq!(image.ended, Ended::Ending);
}

#[test]
fn a_full_side_is_written_anew_to_the_other() {
    let (memory, _) = fresh(128 << 10, &Image::default());
    let writer = Writer::new(memory.clone());
    let uri = vec![b'x'; 1000];
    for _ in 0..2000 {
        assert!(writer.record(Change::Subscribed(&uri)));
        assert!(writer.record(Change::Seen(b"tools 7")));
        assert!(writer.record(Change::Unsubscribed(&uri)));
    }
    assert!(writer.record(Change::Subscribed(b"\"a\"")));
    let image = Image::read(&*memory).unwrap();
    assert_eq!(image.subscriptions, [b"\"a\"".to_vec()].into());
    assert_eq!(image.seen, [b"tools 7".to_vec()]);
    let mut number = 0;
    while writer.record(Change::Subscribed(format!("{number:01000}").as_bytes())) {
        number += 1;
    }
    assert!(number > 900, "{number}");
    let image = Image::read(&*memory).unwrap();
    assert_eq!(
        image.subscriptions.len(),
        number + 1,
        "the last is left out"
    );
}

#[test]
fn ids_of_any_length_are_kept_and_their_slots_come_back() {
    let (memory, _) = fresh(128 << 10, &Image::default());
    let mut writer = Writer::new(memory.clone());
    let ids: Vec<Vec<u8>> = [1, 47, 48, 49, 104, 105, 3000]
        .map(|len| vec![b'7'; len])
        .to_vec();
    let slots: Vec<_> = ids.iter().map(|id| writer.open(id, 0, false)).collect();
    let open = Image::read(&*memory).unwrap().open;
    assert_eq!(
        open.iter().map(|one| &one.id).collect::<Vec<_>>(),
        ids.iter().collect::<Vec<_>>()
    );
    for slot in slots.into_iter().rev().flatten() {
        writer.close(slot);
    }
    assert_eq!(Image::read(&*memory).unwrap().open, []);
    let mut count = 0;
    while writer.open(b"1", 0, false).is_some() {
        count += 1;
    }
    assert_eq!(count, SLOTS, "all of them are free again");
    assert_eq!(Image::read(&*memory).unwrap().open.len(), SLOTS);
}

#[test]
fn what_is_no_journal_is_refused() {
    let memory = Recorder::new(INPUT_AT + 8192);
    assert_eq!(Image::read(&*memory), Err(Unreadable::Foreign));
    let (memory, _) = fresh(128 << 10, &Image::default());
    memory.store(VERSION_AT, 9);
    assert_eq!(Image::read(&*memory), Err(Unreadable::Version(9)));
    memory.store(VERSION_AT, 1);
    memory.store(STATE_AT, u64::MAX);
    assert!(matches!(Image::read(&*memory), Err(Unreadable::Damaged(_))));
}

/// A line longer than the input: what is left of it is known to belong to nothing.
#[test]
fn a_line_that_does_not_fit_is_marked_until_it_has_ended() {
    let (memory, len) = fresh(64 << 10, &Image::default());
    let mut writer = Writer::new(memory.clone());
    let mut input = Input::new(&*memory, len);
    let feed = |input: &mut Input, bytes: &[u8]| {
        let Room::At { at, len } = input.make_room(&*memory, 0) else {
            panic!("nothing waits");
        };
        assert!(bytes.len() <= len);
        memory.step(Step::Arrived(at, bytes.to_vec()));
        input.note_read(bytes.len());
    };
    feed(&mut input, &vec![b'x'; 64 << 10]);
    assert!(!Image::read(&*memory).unwrap().is_input_cut);
    feed(&mut input, b"xx\nnext");
    let image = Image::read(&*memory).unwrap();
    assert!(image.is_input_cut);
    assert_eq!(image.input, b"xx\nnext");
    let slot = writer.open(b"1", (64 << 10) + 3, false).unwrap();
    writer.act_until((64 << 10) + 3);
    let image = Image::read(&*memory).unwrap();
    assert!(!image.is_input_cut);
    assert_eq!(
        (image.input.as_slice(), image.open.len()),
        (&b"next"[..], 1)
    );
    writer.close(slot);
}

/// One thing that a daemon does.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// Reads up to so many bytes.
    Read(usize),
    /// Acts on the next whole line that was read.
    Route,
    /// Answers the open request at this place.
    Answer(usize),
}

fn acts() -> impl Strategy<Value = Vec<Act>> {
    let one = prop_oneof![
        3 => (1usize..90_000).prop_map(Act::Read),
        3 => (1usize..300).prop_map(Act::Read),
        6 => Just(Act::Route),
        4 => any::<usize>().prop_map(Act::Answer),
    ];
    prop::collection::vec(one, 1..80)
}

/// Lines of a host: each a request whose id is its number, in digits as many as wanted.
fn stream(lens: &[usize]) -> (Vec<u8>, Vec<usize>) {
    let (mut bytes, mut ends) = (Vec::new(), Vec::new());
    for (number, len) in lens.iter().enumerate() {
        bytes.extend(format!("{number} ").bytes());
        bytes.resize(bytes.len() + len, b'x');
        bytes.push(b'\n');
        ends.push(bytes.len());
    }
    (bytes, ends)
}

/// Plays a daemon over a stream; gives all steps.
fn play(acts: &[Act], stream: &[u8], ends: &[usize], memory: &Arc<Recorder>) {
    let mut writer = Writer::new(memory.clone());
    let mut input = Input::new(&**memory, 0);
    let (mut read, mut routed) = (0, 0);
    let mut open: Vec<(usize, Slot)> = Vec::new();
    for act in acts {
        match act {
            Act::Read(count) => {
                let whole = ends.iter().rfind(|end| **end <= read).copied();
                let Room::At { at, len } = input.make_room(&**memory, whole.unwrap_or(0) as u64)
                else {
                    continue;
                };
                let count = (*count).min(len).min(stream.len() - read);
                memory.step(Step::Arrived(at, stream[read..read + count].to_vec()));
                input.note_read(count);
                read += count;
            }
            Act::Route if routed < ends.len() && ends[routed] <= read => {
                let until = ends[routed] as u64;
                let id = format!("{routed}").into_bytes();
                let slot = writer.open(&id, until, routed == 0).unwrap();
                writer.act_until(until);
                open.push((routed, slot));
                routed += 1;
            }
            Act::Answer(which) if !open.is_empty() => {
                let (number, slot) = open.swap_remove(which % open.len());
                writer.begin_answer(slot);
                memory.step(Step::Answered(number));
                writer.close(slot);
            }
            Act::Route | Act::Answer(_) => {}
        }
    }
}

/// The memory after the first `count` steps, the bytes that have left the host's pipe and the
/// requests that were answered.
fn stopped_after(steps: &[Step], count: usize, len: usize) -> (Arc<Recorder>, usize, Vec<usize>) {
    let memory = Recorder::new(len);
    let (mut read, mut answered) = (0, Vec::new());
    for step in &steps[..count] {
        match step {
            Step::Arrived(_, bytes) => read += bytes.len(),
            Step::Answered(number) => answered.push(*number),
            _ => {}
        }
        memory.step(step.clone());
    }
    (memory, read, answered)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn nothing_is_lost_and_nothing_told_twice_wherever_the_writer_stops(
        acts in acts(),
        lens in prop::collection::vec(prop_oneof![3 => 0usize..200, 1 => 0usize..100_000], 1..30),
        cut in any::<prop::sample::Index>(),
    ) {
        let (memory, _) = fresh(512 << 10, &Image::default());
        let begun = memory.steps.lock().unwrap().len();
        let (stream, ends) = stream(&lens);
        play(&acts, &stream, &ends, &memory);
        let steps = memory.steps.lock().unwrap().clone();
        let count = begun + cut.index(steps.len() - begun + 1);
        let (memory, read, answered) = stopped_after(&steps, count, memory.len());
        let image = Image::read(&*memory).unwrap();
        let acted = image.acted as usize;
        prop_assert!(acted == 0 || ends.contains(&acted), "lines are acted on as wholes");
        prop_assert_eq!(&image.input, &stream[acted..read].to_vec());
        for (number, end) in ends.iter().enumerate() {
            let id = format!("{number}").into_bytes();
            let open: Vec<_> = image.open.iter().filter(|open| open.id == id).collect();
            let is_answered = answered.contains(&number);
            prop_assert!(open.len() <= 1);
            match open.first() {
                Some(open) => {
                    prop_assert!(*end <= acted && (open.has_begun || !is_answered));
                    prop_assert_eq!(open.is_initialize, number == 0);
                }
                None => prop_assert_eq!(*end <= acted, is_answered),
            }
        }
    }
}
