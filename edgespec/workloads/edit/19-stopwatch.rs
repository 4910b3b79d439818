use std::fmt;
use std::time::{Duration, Instant};

/// Longest list of laps that is kept.
const MAX_LAPS: usize = 100;

#[derive(Default)]
pub struct Stopwatch {
    started: Option<Instant>,
    elapsed: Duration,
    laps: Vec<Duration>,
}

#[derive(Debug, PartialEq)]
pub enum StopwatchError {
    AlreadyRunning,
    NotRunning,
    TooManyLaps,
}

impl fmt::Display for StopwatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StopwatchError::AlreadyRunning => write!(f, "the stopwatch is running"),
            StopwatchError::NotRunning => write!(f, "the stopwatch is not running"),
            StopwatchError::TooManyLaps => write!(f, "no more than {} laps are kept", MAX_LAPS),
        }
    }
}

impl Stopwatch {
    pub fn start(&mut self) -> Result<(), StopwatchError> {
        if self.started.is_some() {
            return Err(StopwatchError::AlreadyRunning);
        }
        self.started = Some(Instant::now());
        Ok(())
    }

    pub fn stop(&mut self) -> Result<Duration, StopwatchError> {
        let started = self.started.take().ok_or(StopwatchError::NotRunning)?;
        self.elapsed += started.elapsed();
        Ok(self.elapsed)
    }

    pub fn total(&self) -> Duration {
        match self.started {
            Some(started) => self.elapsed + started.elapsed(),
            None => self.elapsed,
        }
    }

    pub fn lap(&mut self) -> Result<Duration, StopwatchError> {
        if self.laps.len() >= MAX_LAPS {
            return Err(StopwatchError::TooManyLaps);
        }
        let total = self.total();
        let before: Duration = self.laps.iter().sum();
        self.laps.push(total - before);
        Ok(total - before)
    }

    pub fn reset(&mut self) {
        *self = Stopwatch::default();
    }
}
