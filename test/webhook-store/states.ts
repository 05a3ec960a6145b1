/**
 * The life of a batch, as one table. Whoever takes a webhook away takes its batches out of any state.
 *
 *   open    events are added; at most one of each sequence
 *   sealed  an item of its lane: it waits, lies behind another, or is to be tried again
 *   leased  someone posts it
 *   dead    a letter, until someone redrives or discards it
 *   gone    delivered, dropped or discarded
 */
export type State = 'open' | 'sealed' | 'leased' | 'dead' | 'gone'

export const mayBecome: Readonly<Record<State, Partial<Record<State, string>>>> = {
  open: { sealed: 'full, too big, wrapped otherwise, or due while its sequence is free' },
  sealed: { leased: 'claimed', gone: 'dropped' },
  leased: { gone: 'delivered', sealed: 'failed, throttled, handed back, or its lease lapsed', dead: 'given up' },
  dead: { sealed: 'redriven', gone: 'discarded' },
  gone: {},
}
