/** Dialogs that the state of the page opens and closes. */

import { useLayoutEffect, useRef } from "./html.js";

/**
 * Before anything is drawn or typed: what is typed after the key that opens a dialog is meant for the dialog.
 * @param {boolean} isOpen
 */
export function useDialog(isOpen) {
  const dialog = useRef(/** @type {HTMLDialogElement | null} */ (null));
  useLayoutEffect(() => {
    if (isOpen) dialog.current?.showModal();
    else dialog.current?.close();
  }, [isOpen]);
  return dialog;
}
