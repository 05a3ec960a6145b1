/**
 * SIGINT and SIGTERM for commands that run until they are told to end.
 *
 *   running   nobody asked
 *   asked     `asked` is aborted; the command finishes what it has begun
 *   impatient asked again: the process ends at once
 *
 * One Ctrl-C may be heard twice: from the terminal, and from the npm that has started this.
 */
export interface EndRequest extends Disposable {
  readonly asked: AbortSignal
  /** Resolves when asked. */
  readonly whenAsked: Promise<void>
}

const endSignals = ['SIGINT', 'SIGTERM'] as const
const interruptedExitCode = 130
const sameMs = 300

export function onEndRequest(): EndRequest {
  const asking = new AbortController()
  let askedAt = 0
  const listener = () => {
    if (!asking.signal.aborted) {
      askedAt = performance.now()
      asking.abort()
    } else if (performance.now() - askedAt >= sameMs) process.exit(interruptedExitCode)
  }
  for (const signal of endSignals) process.on(signal, listener)
  return {
    asked: asking.signal,
    whenAsked: whenAborted(asking.signal),
    [Symbol.dispose]() {
      for (const signal of endSignals) process.off(signal, listener)
    },
  }
}

export function whenAborted(signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) resolve()
    else signal.addEventListener('abort', () => resolve(), { once: true })
  })
}
