/**
 * SIGINT and SIGTERM for commands that run until they are told to end.
 *
 *   running   nobody asked
 *   asked     `asked` is aborted; the command finishes what it has begun
 *   impatient asked again: the process ends at once
 */
export interface EndRequest extends Disposable {
  readonly asked: AbortSignal
  /** Resolves when asked. */
  readonly whenAsked: Promise<void>
}

const endSignals = ['SIGINT', 'SIGTERM'] as const
const interruptedExitCode = 130

export function onEndRequest(): EndRequest {
  const asking = new AbortController()
  const listener = () => {
    if (asking.signal.aborted) process.exit(interruptedExitCode)
    asking.abort()
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
