//! SM2 verification by the OpenSSL of this machine: the judge that our own code is held against,
//! and the other side of its measurements. The library is loaded when the program runs, so nothing
//! needs it to build, and a machine without it gets an error that says so.
//!
//! Named for what the rest of the workspace forbids: every call into a C library is `unsafe`.

use libloading::{Library, Symbol};
use std::ffi::{c_char, c_int, c_long, c_uchar, c_void};
use std::ptr;
use thiserror::Error;

/// The library is not to be had.
#[derive(Debug, Error)]
pub enum Missing {
    /// It is not installed, or of another major version.
    #[error("OpenSSL 3 (libcrypto.so.3) cannot be loaded: {0}")]
    Library(#[source] libloading::Error),
    /// It lacks a function: built without SM2 or SM3.
    #[error("this OpenSSL lacks a function: {0}")]
    Function(#[source] libloading::Error),
}

type Free = unsafe extern "C" fn(*mut c_void);

/// The functions that are called, by the types of OpenSSL 3.0's headers.
struct Functions {
    d2i_pubkey: unsafe extern "C" fn(*mut *mut c_void, *mut *const c_uchar, c_long) -> *mut c_void,
    pkey_free: Free,
    pkey_ctx_new: unsafe extern "C" fn(*mut c_void, *mut c_void) -> *mut c_void,
    pkey_ctx_free: Free,
    pkey_ctx_set1_id: unsafe extern "C" fn(*mut c_void, *const c_void, c_int) -> c_int,
    pkey_verify_init: unsafe extern "C" fn(*mut c_void) -> c_int,
    pkey_verify:
        unsafe extern "C" fn(*mut c_void, *const c_uchar, usize, *const c_uchar, usize) -> c_int,
    md_ctx_new: unsafe extern "C" fn() -> *mut c_void,
    md_ctx_free: Free,
    md_ctx_set_pkey_ctx: unsafe extern "C" fn(*mut c_void, *mut c_void),
    sm3: unsafe extern "C" fn() -> *const c_void,
    digest_verify_init: unsafe extern "C" fn(
        *mut c_void,
        *mut *mut c_void,
        *const c_void,
        *mut c_void,
        *mut c_void,
    ) -> c_int,
    digest_verify:
        unsafe extern "C" fn(*mut c_void, *const c_uchar, usize, *const c_uchar, usize) -> c_int,
    version: unsafe extern "C" fn(c_int) -> *const c_char,
    clear_error: unsafe extern "C" fn(),
}

/// OpenSSL, loaded.
pub struct Libcrypto {
    functions: Functions,
    /// Keeps the functions' code in memory.
    _library: Library,
}

impl std::fmt::Debug for Libcrypto {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Libcrypto")
    }
}

impl Libcrypto {
    /// Loads the library.
    ///
    /// # Errors
    /// When there is none, or it lacks SM2.
    pub fn load() -> Result<Self, Missing> {
        // SAFETY: OpenSSL's initialisers may run at any time; it is built to be loaded so.
        #[allow(unsafe_code)]
        let library = unsafe { Library::new("libcrypto.so.3") }.map_err(Missing::Library)?;
        macro_rules! function {
            ($name:literal) => {{
                // SAFETY: the field's type is the function's type in OpenSSL 3's headers, and the
                // library is kept as long as the copied pointer.
                #[allow(unsafe_code)]
                let symbol: Result<Symbol<'_, _>, _> = unsafe { library.get($name) };
                *symbol.map_err(Missing::Function)?
            }};
        }
        let functions = Functions {
            d2i_pubkey: function!(c"d2i_PUBKEY"),
            pkey_free: function!(c"EVP_PKEY_free"),
            pkey_ctx_new: function!(c"EVP_PKEY_CTX_new"),
            pkey_ctx_free: function!(c"EVP_PKEY_CTX_free"),
            pkey_ctx_set1_id: function!(c"EVP_PKEY_CTX_set1_id"),
            pkey_verify_init: function!(c"EVP_PKEY_verify_init"),
            pkey_verify: function!(c"EVP_PKEY_verify"),
            md_ctx_new: function!(c"EVP_MD_CTX_new"),
            md_ctx_free: function!(c"EVP_MD_CTX_free"),
            md_ctx_set_pkey_ctx: function!(c"EVP_MD_CTX_set_pkey_ctx"),
            sm3: function!(c"EVP_sm3"),
            digest_verify_init: function!(c"EVP_DigestVerifyInit"),
            digest_verify: function!(c"EVP_DigestVerify"),
            version: function!(c"OpenSSL_version"),
            clear_error: function!(c"ERR_clear_error"),
        };
        Ok(Self { functions, _library: library })
    }

    /// What the library calls itself, such as `OpenSSL 3.0.19 27 Jan 2026`.
    #[must_use]
    pub fn version(&self) -> String {
        // SAFETY: argument 0 asks for the name, a static string that ends with a zero byte.
        #[allow(unsafe_code)]
        let text = unsafe { std::ffi::CStr::from_ptr((self.functions.version)(0)) };
        text.to_string_lossy().into_owned()
    }

    /// A public key from its SubjectPublicKeyInfo in DER; nothing when OpenSSL does not take it.
    #[must_use]
    pub fn key(&self, spki: &[u8]) -> Option<Key<'_>> {
        let f = &self.functions;
        let mut cursor = spki.as_ptr();
        // SAFETY: the function reads at most the given number of bytes from the cursor. Contexts
        // are freed in `drop`, or here by dropping a key that is not complete.
        #[allow(unsafe_code)]
        unsafe {
            let pkey = (f.d2i_pubkey)(
                ptr::null_mut(),
                &raw mut cursor,
                c_long::try_from(spki.len()).ok()?,
            );
            if pkey.is_null() {
                (f.clear_error)();
                return None;
            }
            let ctx = (f.pkey_ctx_new)(pkey, ptr::null_mut());
            let md = (f.md_ctx_new)();
            let key = Key { library: self, pkey, ctx, md };
            (!ctx.is_null() && !md.is_null()).then_some(key)
        }
    }
}

/// A public key that OpenSSL has parsed.
#[derive(Debug)]
pub struct Key<'a> {
    library: &'a Libcrypto,
    pkey: *mut c_void,
    ctx: *mut c_void,
    md: *mut c_void,
}

impl Key<'_> {
    /// Whether OpenSSL takes `signature` (DER) for that of `message` by this key's holder with
    /// this user id.
    #[must_use]
    pub fn verify(&mut self, user: &[u8], message: &[u8], signature: &[u8]) -> bool {
        let f = &self.library.functions;
        // SAFETY: all contexts are alive (`key` made them), pointers and lengths belong together,
        // and the digest context borrows the key context only until `drop`.
        #[allow(unsafe_code)]
        unsafe {
            (f.md_ctx_set_pkey_ctx)(self.md, self.ctx);
            let ready = (f.digest_verify_init)(
                self.md,
                ptr::null_mut(),
                (f.sm3)(),
                ptr::null_mut(),
                self.pkey,
            ) == 1
                && (f.pkey_ctx_set1_id)(
                    self.ctx,
                    user.as_ptr().cast(),
                    c_int::try_from(user.len()).unwrap_or(-1),
                ) == 1;
            let verdict = ready
                && (f.digest_verify)(
                    self.md,
                    signature.as_ptr(),
                    signature.len(),
                    message.as_ptr(),
                    message.len(),
                ) == 1;
            if !verdict {
                (f.clear_error)();
            }
            verdict
        }
    }

    /// The same for a digest made elsewhere.
    #[must_use]
    pub fn verify_digest(&mut self, digest: &[u8; 32], signature: &[u8]) -> bool {
        let f = &self.library.functions;
        // SAFETY: the context is alive, and pointers and lengths belong together.
        #[allow(unsafe_code)]
        unsafe {
            let verdict = (f.pkey_verify_init)(self.ctx) == 1
                && (f.pkey_verify)(
                    self.ctx,
                    signature.as_ptr(),
                    signature.len(),
                    digest.as_ptr(),
                    digest.len(),
                ) == 1;
            if !verdict {
                (f.clear_error)();
            }
            verdict
        }
    }
}

impl Drop for Key<'_> {
    fn drop(&mut self) {
        let f = &self.library.functions;
        // SAFETY: each was made by `key`, is freed once, and freeing null does nothing. The digest
        // context does not own the key context that was set from outside.
        #[allow(unsafe_code)]
        unsafe {
            (f.md_ctx_free)(self.md);
            (f.pkey_ctx_free)(self.ctx);
            (f.pkey_free)(self.pkey);
        }
    }
}
